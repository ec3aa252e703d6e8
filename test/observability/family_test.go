package observability

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// family is a metric family of a scrape.
type family struct {
	name, kind, help string
	labels           []string // without those that the format itself needs
	buckets          []string
	values           map[string]map[string]bool // of each label
}

// line has everything in a family that dashboards and alerts depend on.
func (f family) line() string {
	return fmt.Sprintf("%s %s {%s} [%s]", f.name, f.kind, strings.Join(f.labels, ","), strings.Join(f.buckets, " "))
}

// parse reads a scrape in the text format.
func parse(text io.Reader) (map[string]family, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read a scrape: %w", err)
	}
	families := map[string]family{}
	for name, raw := range found {
		f := family{name: name, kind: strings.ToLower(raw.GetType().String()), help: raw.GetHelp(), values: map[string]map[string]bool{}}
		for _, m := range raw.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.values[l.GetName()] == nil {
					f.values[l.GetName()] = map[string]bool{}
				}
				f.values[l.GetName()][l.GetValue()] = true
			}
			if f.buckets == nil {
				for _, b := range m.GetHistogram().GetBucket() {
					f.buckets = append(f.buckets, strconv.FormatFloat(b.GetUpperBound(), 'g', 6, 64))
				}
			}
		}
		f.labels = slices.Sorted(maps.Keys(f.values))
		families[name] = f
	}
	return families, nil
}

// union merges the families of several processes.
func union(scrapes ...map[string]family) map[string]family {
	all := map[string]family{}
	for _, scrape := range scrapes {
		for name, f := range scrape {
			old, ok := all[name]
			if !ok {
				all[name] = f
				continue
			}
			for label, values := range f.values {
				if old.values[label] == nil {
					old.values[label] = map[string]bool{}
				}
				maps.Copy(old.values[label], values)
			}
			old.labels = slices.Sorted(maps.Keys(old.values))
			if old.buckets == nil {
				old.buckets = f.buckets
			}
			all[name] = old
		}
	}
	return all
}
