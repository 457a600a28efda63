"""What experiments of all papers share.

experiment      what an experiment is told (`Ask`), and what it is
registry        all of them by name, a line each
paper_result    what comes out: rows with both numbers and a verdict, checks, notes; as text, JSON, CSV and a page
rules           how far apart is too far, and what it means to stand in a paper's order
printed         reads numbers as papers print them
making          runs that train: made once, gone on with, only read when they are finished
trained         finished runs, and what their views say
checking        comparisons with a distance in standard errors, judged together
drawing         drawings that every experiment has
saving          the files of an experiment
"""
