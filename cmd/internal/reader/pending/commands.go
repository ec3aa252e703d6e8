// Package pending has the commands that show what waits, and for what: why-not, lag, parked and
// held. Commands approve and deny decide about the writes that are held.
package pending

import "github.com/spf13/cobra"

// Commands are the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{newWhyNot(), newLag(), newParked(), newHeld(), newApprove(), newDeny()}
}
