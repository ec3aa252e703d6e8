// Package session makes a cobra command of a Program that reads the record. The command's session
// has the open record, what the arguments name, the output as a table, JSON or YAML, and shell
// completion.
package session
