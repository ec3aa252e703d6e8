# The image of another program, as static and as alone. `make images` builds one for each
# program that docker-compose.yaml starts; PLACE is where the published image has it, too.
FROM scratch
ARG PLACE
COPY program ${PLACE}
USER 65532:65532
