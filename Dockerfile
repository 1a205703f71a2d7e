# The programs in an image, from the repository root (docs/launching.md):
#   docker build -t albert .
#   docker run --rm -v "$PWD:/work" albert bin.train_vocab --input=books --output_dir=vocab
FROM python:3.11-slim
# NVIDIA GPUs: --build-arg REQUIREMENTS=requirements-gpu.txt
ARG REQUIREMENTS=requirements.txt
COPY requirements*.txt /opt/albert/
RUN pip install --no-cache-dir -r /opt/albert/$REQUIREMENTS
WORKDIR /opt/albert
COPY albert_tf albert_tf
COPY data_prep data_prep
COPY experiments experiments
COPY bin bin
# Nothing of the working directory is taken for a module of the programs. Any
# user can write to HOME, so that `--user` may name one. The last is which of the
# driver's libraries NVIDIA's container runtime brings in.
ENV PYTHONPATH=/opt/albert PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 HOME=/tmp NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000:1000
WORKDIR /work
ENTRYPOINT ["python", "-m"]
CMD ["bin.count_parameters"]
