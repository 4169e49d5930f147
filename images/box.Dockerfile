# The box of every task family, agent's and grading: they differ in resources, not in what is installed.
# Build context is the repository's root; scripts/build_images.py does it.
FROM python:3.11.7-bookworm

COPY transitbench_env/data/box-requirements.txt /opt/transitbench/box-requirements.txt

# The digest tells a task's setup phase that nothing is left to install.
RUN pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
        --require-hashes --requirement /opt/transitbench/box-requirements.txt \
    && sha256sum /opt/transitbench/box-requirements.txt | cut -d ' ' -f 1 \
        > /opt/transitbench/requirements.sha256

WORKDIR /workspace
