FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements-dev.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements-dev.lock
COPY pyproject.toml README.md LICENSE ./
COPY operator/stellwerk operator/stellwerk
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.12-slim
COPY requirements.lock /tmp/
RUN pip install --no-cache-dir --require-hashes --requirement /tmp/requirements.lock && rm /tmp/requirements.lock
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir --no-deps --no-index /tmp/wheels/*.whl && rm -r /tmp/wheels
# By number, so that runAsNonRoot in a pod's security context can be checked.
USER 65532:65532
ENTRYPOINT ["stellwerk"]
CMD ["run"]
