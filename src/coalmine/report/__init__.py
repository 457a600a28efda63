"""Reports: one self-contained page per audit, several audits in one page, and the figures of both.

    evidence   what a page is made from: a result, and what the directory of its run still has
    words      the sentences: what may be quoted, what is not shown
    facts      the tables: setting, numbers, how to reproduce
    figures    matplotlib figures in one house style, for pages and for notebooks
    page       report.html
    card       a fragment for the documentation of a model
    compare    several audits: axes from what differs, one table, one page
    finish     the page at the end of a run

Needs the extra `coalmine[report]`; only `evidence`, `words`, `facts`, `card` and tables do without.
"""
