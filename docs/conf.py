"""Sphinx settings."""

import ordiff

project = "ordiff"
author = "The ordiff developers"
copyright = "2026, the ordiff developers"
release = ordiff.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
default_role = "any"
nitpicky = False
suppress_warnings = ["ref.any"]
html_static_path = ["static"]
html_css_files = ["pages.css"]
