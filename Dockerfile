# An image with the `ferroflow` binary: docker build --tag ferroflow .
#
# Copy the binary from it into the image of a training program, for `ferroflow submit k8s`:
#   COPY --from=ferroflow /usr/local/bin/ferroflow /usr/local/bin/

FROM rust:1.95-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package ferroflow-cli --bin ferroflow

FROM debian:bookworm-slim
COPY --from=build /source/target/release/ferroflow /usr/local/bin/ferroflow
COPY LICENSE /usr/share/doc/ferroflow/
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
WORKDIR /tmp
EXPOSE 2222
# Whoever reaches the port controls the server: publish it to its cluster alone.
ENTRYPOINT ["ferroflow"]
CMD ["serve", "--bind", "0.0.0.0", "--port", "2222"]
