# make lab | make demo | make test | make check | make labs | make lock          each sets up .venv on first use
# make html | make solutions | make offline                                      the labs to hand out; these too
PYTHON ?= python3
BIN := .venv/bin
.PHONY: lab demo test check labs messages lock html solutions offline

lab: .venv/ready        # the course: copies of the notebooks in my-labs/, then JupyterLab on the first
	@$(BIN)/python -m ckptlab.course.start
demo: .venv/ready       # a run is broken and brought back, bit for bit
	@$(BIN)/ckptlab demo
test: .venv/ready       # everything that needs nothing from outside .venv
	@$(BIN)/pytest -n 2 --dist loadfile
check: .venv/ready      # style, types, and how long each room is
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/python -m tests.lines
labs: .venv/ready       # for authors: run every lab from a clean kernel and write its outputs back
	@$(BIN)/python -m tests.labs.execute
messages: .venv/ready   # for translators: bring ckptlab/course/locale up to date, and count what is reviewed
	@$(BIN)/python tests/messages.py
lock: .venv/ready       # one lock for all platforms; torch is held in pyproject.toml
	@$(BIN)/uv pip compile pyproject.toml --all-extras --universal --no-emit-index-url --no-annotate \
	  --custom-compile-command "make lock" --upgrade --quiet -o constraints.txt
html: .venv/ready       # the labs as pages in html/, to read without a kernel, on a phone too; with the solutions, folded
	@$(BIN)/python -m ckptlab.course.editions html html
solutions: .venv/ready  # for instructors, in solutions/: the notebooks with the solutions, and what goes wrong
	@$(BIN)/python -m ckptlab.course.editions solutions solutions
offline: .venv/ready    # a folder that needs no network; for others too: make offline PLATFORMS="linux_x86_64 macosx_arm64"
	@sh ckptlab/course/editions/offline.sh offline $(PLATFORMS)

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys, ensurepip; sys.exit(0 if sys.version_info >= (3, 11) else 'Python 3.11 or newer is needed')" \
	  || { echo "Install Python 3.11 or newer with venv (Debian, Ubuntu: apt install python3-venv)."; exit 1; }
	@echo "Setting up .venv: downloads PyTorch and JupyterLab (on Linux without a CPU wheel at hand about 3 GB), once."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --constraint constraints.txt --editable '.[test]'
	@touch $@
