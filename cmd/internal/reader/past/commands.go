// Package past has the commands that show what happened and why: history, tail, get, diff and why.
package past

import "github.com/spf13/cobra"

// Commands are the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{newHistory(), newTail(), newGet(), newDiff(), newWhy()}
}
