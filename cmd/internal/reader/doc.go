// Package reader is what the commands have in common that read the record:
// their flags, the connection to the bus, the names of kinds as kubectl's users
// write them, output as a table, JSON or YAML, and shell completion.
package reader
