package exemption

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ReferredTo returns the exemptions to which the Go files in some folders refer. The table itself does not count.
//
// Errors: a file cannot be read.
func ReferredTo(folders ...string) ([]Exemption, error) {
	var code strings.Builder
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return nil, fmt.Errorf("list the files in %s: %w", folder, err)
		}
		for _, file := range files {
			if filepath.Base(file) == "exemption.go" {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read a file: %w", err)
			}
			code.Write(text)
		}
	}
	var all []Exemption
	for _, e := range Exemptions {
		if strings.Contains(code.String(), fmt.Sprintf("(%q", e.ID)) {
			all = append(all, e)
		}
	}
	return all, nil
}

// Named returns the exemptions with some IDs. It panics if there is none with an ID.
func Named(ids ...string) []Exemption {
	var all []Exemption
	for _, id := range ids {
		all = append(all, Exemptions[indexOf(id)])
	}
	return all
}

// Unused reports, a line each, the exemptions that a whole run did not use: they can be removed.
func Unused(all []Exemption) (report string) {
	for _, e := range all {
		if e.Used() == 0 {
			report += fmt.Sprintf("the exemption %s (%s) is of no use: nothing was left out by it\n", e.ID, e.Who)
		}
	}
	return report
}

// Report lists how often each exemption was used, in one line.
func Report(all []Exemption) string {
	var parts []string
	for _, e := range all {
		parts = append(parts, fmt.Sprintf("%s %d", e.ID, e.Used()))
	}
	return "exemptions used: " + strings.Join(parts, ", ")
}
