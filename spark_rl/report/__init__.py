"""One self-contained HTML page about a run: what was asked, what allowed it, how it went, what came out.

In: a run directory, finished or not. Out: a page without scripts and without anything fetched from elsewhere.
Imports matplotlib and jinja2, nothing heavier.

gather   files -> frozen content     plots   series -> SVG     page   content -> HTML
"""

from spark_rl.report.page import render_page, write_report

__all__ = ["render_page", "write_report"]
