// Package reader has the commands that read the record, and what they share:
// flags, the connection to the bus, kubectl's spellings of kinds, output as a
// table, JSON or YAML, and shell completion.
package reader
