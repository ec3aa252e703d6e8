package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/resolve"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// unknownCommand is the error of an unknown command, with similar ones.
func unknownCommand(cmd *cobra.Command, args []string) error {
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

// unknownFlag adds similar flags to the error of an unknown one, and where flags are listed.
func unknownFlag(cmd *cobra.Command, err error) error {
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

// check is an error if an item of --controllers or --shadow names no controller.
func (o *controllerOptions) check() error {
	var unknown []error
	for _, list := range []struct {
		flag  string
		items []string
	}{{"controllers", o.controllers}, {"shadow", o.shadow}} {
		for _, item := range list.items {
			name := strings.TrimPrefix(strings.TrimSpace(item), "-")
			if name == "*" {
				continue
			}
			if _, err := resolve.Controller(name); err != nil {
				unknown = append(unknown, fmt.Errorf("read --%s: %w", list.flag, err))
			}
		}
	}
	return errors.Join(unknown...)
}

// ours are the names of the controllers that Millrace has.
func ours() (names []string) {
	for _, e := range controllers.Catalog() {
		if e.Exists() {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return names
}
