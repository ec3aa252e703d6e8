package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/millrace/millrace/cmd/bench/cpuprofile"
	"github.com/millrace/millrace/cmd/evidence"
)

// speed is the evidence of a run in docs/evidence.
type speed struct {
	Processors string `json:"processors"`
	Millrace   string `json:"millrace"`          // the program's version, which names its commit
	Earlier    string `json:"earlier,omitempty"` // the version of the contender of this name
	Turns      int    `json:"turns"`
	Work       sizes  `json:"work"`
	// Shares are percentages of the processor time of Millrace's processes, by guard.
	Shares map[string]float64 `json:"sharesOfProcessorTime"`
	Rows   []proved           `json:"rows"`
}

// proved is a row with its ratios: below 1, Millrace needs less.
type proved struct {
	row
	ToTuned   string `json:"millrace/tuned,omitempty"`
	ToEarlier string `json:"millrace/earlier,omitempty"`
}

// prove writes the numbers of a run with the versions of the programs.
func (b *bench) prove(ctx context.Context, file string) error {
	p := speed{Processors: b.results.Machine, Turns: b.turns, Work: b.work}
	var err error
	if p.Millrace, err = versionOf(ctx, b.binary); err != nil {
		return err
	}
	if b.earlier != "" {
		if p.Earlier, err = versionOf(ctx, b.earlier); err != nil {
			return err
		}
	}
	merged, err := b.profiler.Merged()
	if err != nil {
		return err
	}
	p.Shares = cpuprofile.Shares(merged)
	for name, share := range p.Shares {
		if share == 0 {
			return fmt.Errorf("write evidence: no sample of the profile is of %s: too little was played, or the functions have other names now", name)
		}
	}
	for _, r := range b.results.Rows {
		p.Rows = append(p.Rows, proved{row: r, ToTuned: ratioOrNothing(r, "kcm-tuned"), ToEarlier: ratioOrNothing(r, earlier)})
	}
	return evidence.Write(ctx, file, p)
}

func ratioOrNothing(r row, other string) string {
	return strings.TrimPrefix(r.ratio("millrace", other), "-")
}

// versionOf is the output of a millrace program's --version.
func versionOf(ctx context.Context, binary string) (string, error) {
	said, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", binary, err)
	}
	return strings.TrimSpace(string(said)), nil
}
