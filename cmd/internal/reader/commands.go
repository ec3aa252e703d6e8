// Package reader lists the commands that read the record. Its folders have them in groups: past
// (what happened, and why), pending (what waits, and for what), audit (whether the record is
// whole, and its turns are still decided so) and migration (moving controllers from and to
// kube-controller-manager).
//
// The groups do not import each other. They rest on package session, which makes a command of a
// Program: its flags, the connection to the record (package connect), the words for kinds and
// controllers (package resolve), and the output (package printer).
package reader

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/reader/audit"
	"github.com/millrace/millrace/cmd/internal/reader/migration"
	"github.com/millrace/millrace/cmd/internal/reader/past"
	"github.com/millrace/millrace/cmd/internal/reader/pending"
)

// Commands are the commands that read the record. version is the program's, which export keeps
// in its files.
func Commands(version string) []*cobra.Command {
	return slices.Concat(past.Commands(), pending.Commands(), audit.Commands(version), migration.Commands())
}
