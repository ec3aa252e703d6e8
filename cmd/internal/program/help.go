package program

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	cliflag "k8s.io/component-base/cli/flag"
)

// The help of a program shows its flags in sections, as that of Kubernetes' components does, and
// the help of millrace its commands in groups.

// section is the annotation of a flag that has its section; flags without it are in globalSection.
const (
	section       = "millrace.io/section"
	globalSection = "global"
)

// Titled returns add with a section for each flag that it adds and that has none yet.
func Titled(title string, add func(*pflag.FlagSet)) func(*pflag.FlagSet) {
	return func(f *pflag.FlagSet) {
		before := map[string]bool{}
		f.VisitAll(func(flag *pflag.Flag) { before[flag.Name] = true })
		add(f)
		f.VisitAll(func(flag *pflag.Flag) {
			switch {
			case before[flag.Name] || flag.Annotations[section] != nil:
			case flag.Annotations == nil:
				flag.Annotations = map[string][]string{section: {title}}
			default:
				flag.Annotations[section] = []string{title}
			}
		})
	}
}

// sectioned are the flags that the help shows, by section, in the order in which they were added;
// the section of the flags that every command has comes last.
func sectioned(f *pflag.FlagSet) cliflag.NamedFlagSets {
	all := cliflag.NamedFlagSets{NormalizeNameFunc: f.GetNormalizeFunc()}
	var global []*pflag.Flag
	sorted := f.SortFlags
	f.SortFlags = false
	f.VisitAll(func(flag *pflag.Flag) {
		switch title := flag.Annotations[section]; {
		case flag.Hidden || flag.Deprecated != "":
		case title == nil:
			global = append(global, flag)
		default:
			all.FlagSet(title[0]).AddFlag(flag)
		}
	})
	f.SortFlags = sorted
	for _, flag := range global {
		all.FlagSet(globalSection).AddFlag(flag)
	}
	return all
}

// showSections prints the usage of a program, within the width of the terminal if there is one.
func showSections(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nAvailable Commands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(w, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		width = 0 // no terminal: lines are not wrapped
	}
	cliflag.PrintSections(w, sectioned(cmd.Flags()), width)
	return nil
}
