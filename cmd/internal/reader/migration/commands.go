// Package migration has the commands that move controllers between kube-controller-manager and
// Millrace: takeover and giveback, and shadow, which shows whether the two agree.
package migration

import "github.com/spf13/cobra"

// Commands are the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{newShadow(), newTakeover(), newGiveback()}
}
