// Command licenses prints the licences of everything in a program of this repository: of each module that has
// a package in it, with the texts that its authors require to be passed on, and Go's own. `make release` and
// `make image` put the output beside the program.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "name a package and the system it is built for: licenses ./cmd/millrace linux")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// ours is the path prefix of the modules of this repository, whose licence is LICENSE.
const ours = "github.com/millrace/millrace/"

// module is a module with its texts, keyed by file name within the module.
type module struct {
	name, version string
	texts         map[string][]byte
}

// run prints the licences for a program that is built without cgo for a system. It prints each text once.
func run(ctx context.Context, program, system string, to io.Writer) error {
	modules, err := gather(ctx, program, system)
	if err != nil {
		return fmt.Errorf("gather licences: %w", err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "What this program is made of besides Millrace itself: %d parts, and the licence of each.\n", len(modules))
	printed := map[string]string{}
	for _, m := range modules {
		fmt.Fprintf(&out, "\n%s\n%s %s\n", strings.Repeat("=", 80), m.name, m.version)
		for _, name := range slices.Sorted(maps.Keys(m.texts)) {
			text := string(bytes.TrimSpace(m.texts[name]))
			if before, is := printed[text]; is {
				fmt.Fprintf(&out, "\n--- %s: the same text as %s\n", name, before)
				continue
			}
			printed[text] = name + " of " + m.name
			fmt.Fprintf(&out, "\n--- %s\n\n%s\n", name, text)
		}
	}
	_, err = to.Write(out.Bytes())
	return err
}

// listed is a package in the output of go list.
type listed struct {
	Dir    string
	Module *struct {
		Path, Version, Dir string
		Replace            *struct{ Path, Version, Dir string }
	}
}

// gather collects the texts of each module that has a package in the program.
//
// Errors: go list fails; a module has no licence.
func gather(ctx context.Context, program, system string) (all []module, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Module", program)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system)
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w", program, err)
	}
	found := map[string]*module{}
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var p listed
		if err := decoder.Decode(&p); err != nil {
			return nil, fmt.Errorf("read the packages of %s: %w", program, err)
		}
		if p.Module == nil || strings.HasPrefix(p.Module.Path+"/", ours) {
			continue
		}
		name, version, root := p.Module.Path, p.Module.Version, p.Module.Dir
		if r := p.Module.Replace; r != nil {
			version, root = r.Path+" "+r.Version, r.Dir
		}
		if found[name] == nil {
			found[name] = &module{name, version, map[string][]byte{}}
		}
		if err := found[name].collect(root, p.Dir); err != nil {
			return nil, err
		}
	}
	golang, err := golang(ctx)
	if err != nil {
		return nil, err
	}
	all = append(all, golang)
	for _, m := range found {
		if len(m.texts) == 0 {
			return nil, fmt.Errorf("%s %s has no licence", m.name, m.version)
		}
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b module) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

// licence matches the names of the files whose text is passed on.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|notice|copying|copyright|patents|authors)([.-].*)?$`)

// collect takes the texts of a package's directory, and of its parent directories within the module.
func (m *module) collect(root, dir string) error {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("look for the licence of %s: %w", m.name, err)
		}
		for _, e := range entries {
			if e.IsDir() || !licence.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
				continue
			}
			file := filepath.Join(dir, e.Name())
			name, err := filepath.Rel(root, file)
			if err == nil && m.texts[name] == nil {
				m.texts[name], err = os.ReadFile(file)
			}
			if err != nil {
				return fmt.Errorf("read the licence of %s: %w", m.name, err)
			}
		}
		if dir == root || len(dir) <= len(root) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// golang is Go's standard library, which is in every program.
func golang(ctx context.Context) (m module, err error) {
	text, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return m, fmt.Errorf("find Go: %w", err)
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	m = module{"Go", version, map[string][]byte{}}
	for _, name := range []string{"LICENSE", "PATENTS"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if name == "PATENTS" && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return m, fmt.Errorf("read the licence of Go: %w", err)
		}
		m.texts[name] = text
	}
	return m, nil
}
