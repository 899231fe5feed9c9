"""Datasets: generated watch logs, and loaders for MovieLens, Last.fm, Amazon reviews and Parquet folders."""

from everypair.datasets.amazon import amazon_reviews
from everypair.datasets.folder import parquet
from everypair.datasets.generated import youtube_like
from everypair.datasets.lastfm import lastfm_360k
from everypair.datasets.movielens import movielens

__all__ = ["amazon_reviews", "lastfm_360k", "movielens", "parquet", "youtube_like"]
