package program

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/resolve"
)

// UnknownCommand is the error of an unknown command, with similar ones.
func UnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(append(names, c.Name()), c.Aliases...)
		}
	}
	return fmt.Errorf("there is no command %q%s %s --help lists them", args[0], meant(args[0], names), cmd.DisplayName())
}

// UnknownFlag adds similar flags to the error of an unknown one, and where flags are listed.
func UnknownFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 || strings.Contains(err.Error(), "which is of millrace") {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return fmt.Errorf("%w%s %s --help lists them", err, meant("--"+unknown.GetSpecifiedName(), names), cmd.CommandPath())
}

// meant suggests similar names; a semicolon if there are none.
func meant(word string, names []string) string {
	if near := resolve.Meant(resolve.Near(word, names)); near != "" {
		return near
	}
	return ";"
}

// services are the commands that run one service each, in the order in which an error names them.
var services = []string{"watcher", "reconcilers", "writer"}

// explained adds to the error of an unknown flag the services that have that flag, since
// millrace run takes all of kube-controller-manager's flags, and a single service only some.
func explained(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := strings.ReplaceAll(unknown.GetSpecifiedName(), "_", "-")
	if len(name) < 2 {
		return err
	}
	var of []string
	for _, service := range services {
		for _, c := range cmd.Root().Commands() {
			if c.Name() == service && c.Flags().Lookup(name) != nil {
				of = append(of, service)
			}
		}
	}
	if len(of) == 0 {
		return err
	}
	return fmt.Errorf("%w, which is of millrace %s: give it there, or everything to millrace run", err, strings.Join(of, " and "))
}
