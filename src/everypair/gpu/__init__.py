"""Training and ranking on GPUs: the same solver and towers on another engine.

``device`` says which device a fit runs on, ``engine`` is the engine of the solver, ``rows`` the sweep of a side, and ``topn`` the
search for the best items; ``sources`` reads the CUDA kernels in ``kernels/``, and ``cuda`` compiles and launches them through CuPy.
Nothing else imports CuPy, and nothing imports it before a GPU is asked for.
"""
