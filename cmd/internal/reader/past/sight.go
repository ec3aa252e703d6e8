package past

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/pkg/events/record"
)

// most is how many kinds sight lists; above that it only counts the kinds that are no cause.
const most = 5

// sight describes what a decision had seen: its object, and how far it had read the kinds of
// its causes.
func sight(d *record.Decision, causes []*record.Cause) string {
	text := ""
	if d.ResourceVersion != "" {
		text = "its object @" + d.ResourceVersion + printer.Generation(d.Generation)
	}
	matter := map[string]bool{}
	for _, c := range causes {
		matter[string(c.Version.Object.Kind)] = true
	}
	var read []string
	others := 0
	for kind, position := range d.Seen {
		if len(d.Seen) > most && !matter[string(kind)] {
			others++
			continue
		}
		read = append(read, fmt.Sprintf("%s up to %d", kind, position))
	}
	slices.Sort(read)
	for _, r := range read {
		text = joined(text, r)
	}
	switch {
	case others == 1:
		text = joined(text, "1 other kind")
	case others > 1:
		text = joined(text, fmt.Sprintf("%d other kinds", others))
	}
	return text
}

func joined(text, more string) string {
	if text == "" {
		return more
	}
	return text + ", " + more
}
