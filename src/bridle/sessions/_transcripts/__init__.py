"""Transcripts: their entries, files and summaries."""
