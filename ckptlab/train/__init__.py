"""The reference job, as a practitioner would write it, and the demo that breaks it and brings it back.

text, windows: what it trains on; model: a small GPT; options: its command line; job: the training; records: what each rank did;
demo: the story; report: whether it came out equal. Only windows, model and job load torch, so nothing is handed on here.
"""
