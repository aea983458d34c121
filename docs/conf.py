"""Sphinx configuration; 'make docs' builds with warnings as errors."""

from importlib.metadata import version as installed_version

project = "daqiri-ophyd"
author = "daqiri-ophyd contributors"
copyright = f"2026, {author}"
release = version = installed_version("daqiri-ophyd")

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = "daqiri-ophyd"
html_show_sourcelink = False
html_theme_options = {"show_prev_next": False, "navigation_with_keys": False}
