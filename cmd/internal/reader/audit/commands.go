// Package audit has the commands that judge the record as a whole, and carry it elsewhere to be
// judged: verify checks that it is complete and unchanged, replay and explain decide its turns
// again, export and import write it to a file and back, and retention shows how much is kept.
package audit

import "github.com/spf13/cobra"

// Commands are the commands of this package. version is the program's, which export keeps in its
// files.
func Commands(version string) []*cobra.Command {
	return []*cobra.Command{newVerify(), newReplay(), newExplain(), newExport(version), newImport(), newRetention()}
}
