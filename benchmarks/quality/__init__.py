"""How good it is, beside published results: ``everypair benchmark quality``.

``rows.py`` has the data sets and what is tried on each, ``problems.py`` how they are split, ``contenders.py`` what is fitted,
``trained.py`` what is measured (in a process of its own), ``results.py`` the order of it all and the part of the report.
"""
