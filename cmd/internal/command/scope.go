package command

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/services/watcher"
)

// scope is the flag for the share of the kinds that a watcher watches.
type scope struct{ of watcher.Scope }

func (s *scope) add(f *pflag.FlagSet) {
	f.Var(s, "scope",
		"kinds to watch: all; built-in, Kubernetes' own kinds except Secrets; or other, Secrets and custom kinds. Watchers of the last two have identities with different rights: run both")
}

func (s *scope) String() string {
	if s.of == "" {
		return string(watcher.All)
	}
	return string(s.of)
}

func (s *scope) Type() string { return "scope" }

// Set parses the flag.
//
// Errors: no scope has that name.
func (s *scope) Set(text string) error {
	if !slices.Contains(watcher.Scopes, watcher.Scope(text)) {
		return fmt.Errorf("%q is not all, built-in or other", text)
	}
	s.of = watcher.Scope(text)
	return nil
}
