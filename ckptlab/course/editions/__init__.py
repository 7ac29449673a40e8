"""The labs to hand out: pages to read without a kernel, an instructor's copies with solutions, a folder for no network."""
