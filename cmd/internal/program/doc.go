// Package program makes the subcommands of millrace: a [Program] becomes a cobra command that takes its
// flags from the command line, the environment and --config, sets up logging, and shows its flags in
// sections. It also has what every command shares: the version, the logger, and the errors of unknown
// commands and flags.
package program
