package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/evidence"
)

// provenance identifies the run and the build that a file of results belongs to.
type provenance struct {
	by, version, begun, machine string
}

const provenanceMark = "# run"

// provenanceOf asks the program under test for its version. A run without Millrace has the version of the
// control plane, which is pinned.
func provenanceOf(ctx context.Context, o options, kubernetes string) (provenance, error) {
	p := provenance{by: o.by, version: kubernetes, begun: now(), machine: evidence.Machine()}
	if o.by != "millrace" && o.by != "shadow" {
		return p, nil
	}
	out, err := exec.CommandContext(ctx, o.binary, "--version").Output()
	if err != nil {
		return p, fmt.Errorf("ask %s for its version: %w", o.binary, err)
	}
	p.version = strings.TrimSpace(strings.TrimPrefix(string(out), "millrace version "))
	return p, nil
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// String is the first line of a file of results.
func (p provenance) String() string {
	return strings.Join([]string{provenanceMark, p.by, p.version, p.begun, p.machine}, "\t")
}

// provenanceIn finds that line in the text of a file.
func provenanceIn(file, text string) (provenance, error) {
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); f[0] == provenanceMark && len(f) == 5 {
			return provenance{by: f[1], version: f[2], begun: f[3], machine: f[4]}, nil
		}
	}
	return provenance{}, fmt.Errorf("read %s: no line of it says which run it is of (%q, by, version, date, machine): run the tests anew", file, provenanceMark)
}
