package limits

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

const (
	// APIVersion is the version of the configuration file.
	APIVersion = "millrace.io/v1alpha1"
	// Kind is the kind of the configuration file.
	Kind = "WriteLimits"
	// Longest is the longest time over which writes are counted. Streams keep outcomes for longer
	// by default.
	Longest = time.Hour
	// all matches every controller, or every namespace.
	all = "*"
)

// Scope says which writes are counted together.
type Scope string

const (
	// PerController counts all writes of a controller together. It is the default.
	PerController Scope = "controller"
	// PerNamespace counts the writes of a controller in each namespace by themselves.
	PerNamespace Scope = "namespace"
)

// Limit bounds some writes of some controllers. It counts each controller by itself.
type Limit struct {
	// Name identifies the limit in outcomes, metrics and approvals.
	Name string `json:"name"`
	// Controllers are the controllers whose writes are limited; empty or "*": all.
	Controllers []string `json:"controllers,omitempty"`
	// Verbs are the limited verbs: create, update, patch, delete.
	Verbs []events.Verb `json:"verbs"`
	// Kinds are the kinds of the written objects, such as pods or deployments.apps.
	Kinds []kinds.Name `json:"kinds"`
	// Namespaces are the namespaces of the written objects; empty or "*": all, and objects
	// without a namespace.
	Namespaces []string `json:"namespaces,omitempty"`
	// Per says which writes are counted together; empty: [PerController].
	Per Scope `json:"per,omitempty"`
	// Max is how many writes may be made within Within. With 0 every write needs an approval.
	Max int `json:"max"`
	// Within is the time over which writes are counted, at most [Longest]; none where Max is 0.
	Within metav1.Duration `json:"within,omitzero"`
}

// Set is the configuration of all limits. A nil Set limits nothing.
type Set struct {
	metav1.TypeMeta `json:",inline"`
	Limits          []Limit `json:"limits"`
}

// Parse reads a configuration file in YAML or JSON.
//
// Errors: the text is malformed, has an unknown field, or a limit is invalid. The error names the
// limit and says what to write.
func Parse(text []byte) (*Set, error) {
	s := new(Set)
	if err := yaml.UnmarshalStrict(text, s); err != nil {
		return nil, fmt.Errorf("read the write limits: %w", err)
	}
	if s.APIVersion != APIVersion || s.Kind != Kind {
		return nil, fmt.Errorf("read the write limits: it begins with apiVersion %q and kind %q; write %q and %q", s.APIVersion, s.Kind, APIVersion, Kind)
	}
	if len(s.Limits) == 0 {
		return nil, errors.New("read the write limits: there are none; list at least one under limits")
	}
	known := map[string]bool{}
	for i := range s.Limits {
		l := &s.Limits[i]
		if err := l.complete(); err != nil {
			return nil, fmt.Errorf("read the write limits: limit %d, %q: %w", i+1, l.Name, err)
		}
		if known[l.Name] {
			return nil, fmt.Errorf("read the write limits: two limits are named %q", l.Name)
		}
		known[l.Name] = true
	}
	return s, nil
}

var (
	validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	verbs     = []events.Verb{events.VerbCreate, events.VerbUpdate, events.VerbPatch, events.VerbDelete}
)

// complete fills in the defaults and checks the limit.
func (l *Limit) complete() error {
	if l.Per == "" {
		l.Per = PerController
	}
	switch {
	case !validName.MatchString(l.Name):
		return errors.New("its name is no DNS label (lower-case letters, digits and dashes, at most 63)")
	case len(l.Verbs) == 0:
		return errors.New("it has no verbs; list some of create, update, patch and delete")
	case len(l.Kinds) == 0:
		return errors.New("it has no kinds; list some, such as pods or deployments.apps")
	case l.Per != PerController && l.Per != PerNamespace:
		return fmt.Errorf("per is %q; write %s or %s", l.Per, PerController, PerNamespace)
	case l.Max < 0:
		return fmt.Errorf("max is %d; write the number of writes, or 0 if each needs an approval", l.Max)
	case l.Max == 0 && l.Within.Duration != 0:
		return errors.New("max is 0, so that every write needs an approval; leave within out")
	case l.Max > 0 && (l.Within.Duration < time.Second || l.Within.Duration > Longest):
		return fmt.Errorf("within is %v; write a time from 1s to %v", l.Within.Duration, Longest)
	}
	for _, v := range l.Verbs {
		if !slices.Contains(verbs, v) {
			return fmt.Errorf("%q is no verb; write create, update, patch or delete", v)
		}
	}
	for _, k := range l.Kinds {
		if k == "" || strings.ToLower(string(k)) != string(k) || strings.ContainsAny(string(k), "/* ") {
			return fmt.Errorf("%q is no kind; write the resource and its group, such as pods or deployments.apps", k)
		}
	}
	return nil
}

// Controllers are the controllers that limits name, without "*".
func (s *Set) Controllers() []string {
	if s == nil {
		return nil
	}
	var names []string
	for _, l := range s.Limits {
		for _, c := range l.Controllers {
			if c != all && !slices.Contains(names, c) {
				names = append(names, c)
			}
		}
	}
	return names
}

// of are the limits of a controller.
func (s *Set) of(controller string) []Limit {
	if s == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Limits), func(l Limit) bool { return !matches(l.Controllers, controller) })
}

// limits reports whether a limit counts a command. Reports of what was observed (status and Events)
// are never limited: a report that is held would hide what is going on.
func (l Limit) limits(c events.Command) bool {
	return !c.Reports() && slices.Contains(l.Verbs, c.Verb) && slices.Contains(l.Kinds, c.Kind) && matches(l.Namespaces, c.Namespace)
}

// bucket is what a command counts against.
func (l Limit) bucket(c events.Command) bucket {
	if l.Per == PerNamespace {
		return bucket{l.Name, c.Namespace}
	}
	return bucket{limit: l.Name}
}

func matches(list []string, name string) bool {
	return len(list) == 0 || slices.Contains(list, all) || slices.Contains(list, name)
}
