package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/millrace/millrace/cmd/internal/command"
)

// describe writes a man page for each command, and the completions of four shells, by file name.
func describe(version string, at time.Time) (map[string][]byte, error) {
	root := command.Root()
	root.Version, root.DisableAutoGenTag = version, true
	files := map[string][]byte{}
	for name, write := range map[string]func(io.Writer) error{
		"completions/millrace.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"completions/_millrace":     root.GenZshCompletion,
		"completions/millrace.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		"completions/millrace.ps1":  root.GenPowerShellCompletionWithDesc,
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = out.Bytes()
	}
	return files, manual(root, version, at, files)
}

// manual adds the man pages of a command and its subcommands to files.
func manual(c *cobra.Command, version string, at time.Time, files map[string][]byte) error {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	var out bytes.Buffer
	c.DisableAutoGenTag = true
	header := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Date: &at, Source: "Millrace " + version, Manual: "Millrace"}
	if err := doc.GenMan(c, header, &out); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	files["man/man1/"+name+".1"] = out.Bytes()
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
			if err := manual(sub, version, at, files); err != nil {
				return err
			}
		}
	}
	return nil
}
