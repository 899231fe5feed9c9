"""Quality beside published results: ``python -m benchmarks quality``.

``datasets.py`` specifies the data sets and the models tried on each, ``tasks.py`` how each is split and evaluated,
``recommenders.py`` builds models from settings, ``worker.py`` tunes and fits (in a separate process), ``plan.py`` has the order of
measurements, ``report.py`` the section of the report.
"""
