"""Figures, one module each: tables in, a .pdf and a .png of the same stem out."""
