package command

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// said is a Millrace command on a page.
type said struct {
	where string // the file
	words []string
}

var (
	fence      = regexp.MustCompile("(?ms)^ *```[a-z]*\n(.*?)^ *```")
	inline     = regexp.MustCompile("`([^`\n]+)`")
	comment    = regexp.MustCompile(`(?m)^\s*#   ?(\S.*)$`)
	ourCommand = regexp.MustCompile(`(?:^|[\s('"/])(?:bin/)?(?:kubectl[ -])?millrace((?: [^|&;<>()\x60\n]+)?)`)
	quoted     = regexp.MustCompile(`'[^']*'|"[^"]*"|\$\([^)]*\)`)
	applied    = regexp.MustCompile(`(?:apply|delete|diff|kustomize)(?: -n \S+)? (?:-[kf] )?(deployments/\S+)`)
	makeWord   = regexp.MustCompile(`(?:^|[\s(])make ([a-z][a-z0-9-]*)`)
)

// shown are the parts of a page that may have commands: the code in Markdown, and the indented
// comments in a manifest or configuration.
func shown(file, text string) (all []string) {
	pick := func(found [][]string) {
		for _, m := range found {
			all = append(all, strings.Split(strings.ReplaceAll(m[1], "\\\n", " "), "\n")...)
		}
	}
	if filepath.Ext(file) != ".md" {
		pick(comment.FindAllStringSubmatch(text, -1))
		return all
	}
	pick(fence.FindAllStringSubmatch(text, -1))
	pick(inline.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1))
	return all
}

// pages are the documents that show users commands.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	add := func(file string) {
		text, err := os.ReadFile(file)
		ok(t, err)
		texts[file] = string(text)
	}
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docker-compose.yaml"} {
		add(filepath.Join(checkout, name))
	}
	for _, folder := range []string{"docs", "deployments"} {
		ok(t, filepath.WalkDir(filepath.Join(checkout, folder), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && slices.Contains([]string{".md", ".yaml", ".conf"}, filepath.Ext(path)) {
				add(path)
			}
			return err
		}))
	}
	return texts
}

// commandsIn are the Millrace commands in lines.
func commandsIn(file string, lines []string) (all []said) {
	for _, line := range lines {
		line, _, _ = strings.Cut(line, " # ")
		// A quoted text is one word.
		plain := quoted.ReplaceAllString(line, "X")
		for _, m := range ourCommand.FindAllStringSubmatch(plain, -1) {
			if words := strings.Fields(m[1]); len(words) > 0 {
				all = append(all, said{file, words})
			}
		}
	}
	return all
}

// wrongWith is the part of a command that does not exist; empty: none.
func wrongWith(root *cobra.Command, words []string) string {
	command := root
	rest := words
	for len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		i := slices.IndexFunc(command.Commands(), func(c *cobra.Command) bool { return c.Name() == rest[0] || c.HasAlias(rest[0]) })
		if i < 0 {
			break
		}
		command, rest = command.Commands()[i], rest[1:]
	}
	if command == root && len(rest) > 0 && regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(rest[0]) {
		return "there is no command " + rest[0]
	}
	command.InitDefaultHelpFlag()
	for _, word := range rest {
		name, is := strings.CutPrefix(word, "--")
		if name, _, _ = strings.Cut(strings.TrimRight(name, ",.:)]`…"), "="); !is || name == "" || strings.ContainsAny(name, "<[…") {
			continue
		}
		if command.Flags().Lookup(name) == nil && command.InheritedFlags().Lookup(name) == nil && command.PersistentFlags().Lookup(name) == nil && name != "version" {
			return "millrace " + command.Name() + " has no flag --" + name
		}
	}
	return ""
}

// helped are the commands in the help of all commands.
func helped(command *cobra.Command) (all []said) {
	text := strings.ReplaceAll(command.Long+"\n"+command.Example, "\\\n", " ")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  ") {
			all = append(all, commandsIn(command.CommandPath(), []string{line})...)
		}
	}
	for _, c := range command.Commands() {
		all = append(all, helped(c)...)
	}
	return all
}

// TestWrongCommandsAreFound: the check finds possible mistakes of a page.
func TestWrongCommandsAreFound(t *testing.T) {
	for text, says := range map[string]string{
		"millrace raze":                            "no command raze",
		"bin/millrace run --data-dri=x":            "no flag --data-dri",
		"x | kubectl millrace why pod/a --at-once": "no flag --at-once",
		"millrace bus secrets --dir=x --split":     "secrets has no flag --split",
		"kubectl millrace why pod/web-… --at=2d":   "", "millrace run --kubeconfig=$(x) --mode='dry-run'": "",
	} {
		found := commandsIn("a page", shown("a.md", "Say:\n\n```\n"+text+"\n```\n"))
		if len(found) != 1 {
			t.Errorf("%q is %d commands", text, len(found))
			continue
		}
		if wrong := wrongWith(newRoot(), found[0].words); (says == "") != (wrong == "") || !strings.Contains(wrong, says) {
			t.Errorf("%q: %q, want %q", text, wrong, says)
		}
	}
}

// TestPagesShowCommandsThatThereAre: each Millrace command on a page exists, with its flags, and so
// does each applied path and each target of make.
func TestPagesShowCommandsThatThereAre(t *testing.T) {
	root := newRoot()
	root.InitDefaultCompletionCmd()
	makefile, err := os.ReadFile(filepath.Join(checkout, "Makefile"))
	ok(t, err)
	commands, paths, targets := 0, 0, 0
	for file, text := range pages(t) {
		lines := shown(file, text)
		for _, c := range commandsIn(file, lines) {
			commands++
			if wrong := wrongWith(root, c.words); wrong != "" {
				t.Errorf("%s: %q: %s", c.where, "millrace "+strings.Join(c.words, " "), wrong)
			}
		}
		for _, line := range lines {
			for _, m := range applied.FindAllStringSubmatch(line, -1) {
				paths++
				if _, err := os.Stat(filepath.Join(checkout, strings.Trim(m[1], "`,."))); err != nil {
					t.Errorf("%s: %q: %v", file, line, err)
				}
			}
			for _, m := range makeWord.FindAllStringSubmatch(line, -1) {
				targets++
				if !strings.Contains(string(makefile), "\n"+m[1]+":") {
					t.Errorf("%s: %q: there is no target %s", file, line, m[1])
				}
			}
		}
	}
	for _, c := range helped(root) {
		commands++
		if wrong := wrongWith(root, c.words); wrong != "" {
			t.Errorf("the help of %s: %q: %s", c.where, "millrace "+strings.Join(c.words, " "), wrong)
		}
	}
	if commands < 150 || paths < 5 || targets < 20 {
		t.Errorf("only %d commands, %d paths and %d targets of make are found", commands, paths, targets)
	}
}
