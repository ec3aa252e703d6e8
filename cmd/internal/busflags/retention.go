package busflags

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

const (
	// leastAge is how long a writer, a reconciler or a watcher may be down and still find the
	// messages that it needs: turns are carried out for two minutes, outcomes are delivered
	// for ten.
	leastAge = 10 * time.Minute
	// leastBytes holds a few of the largest objects.
	leastBytes = 16 << 20
)

// retention is the flag --retention: how much is kept of a kind or a controller, as
// NAME=AGE/SIZE, separated by commas. AGE or SIZE may be missing.
type retention map[string]bus.Retention

// Set parses the flag, or one occurrence of it: the flag may be given more than once.
func (r *retention) Set(text string) error {
	all := maps.Clone(*r)
	if all == nil {
		all = retention{}
	}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, how, ok := strings.Cut(item, "=")
		if !ok {
			return fmt.Errorf("%q does not say how much is kept: write NAME=AGE/SIZE, such as pods=72h/2Gi, pods=72h or pods=/2Gi", item)
		}
		if _, twice := all[name]; twice {
			return fmt.Errorf("%q is there twice", name)
		}
		if err := kept(name); err != nil {
			return err
		}
		kept, err := parseRetention(how)
		if err != nil {
			return fmt.Errorf("%s: %w", item, err)
		}
		all[name] = kept
	}
	*r = all
	return nil
}

// String formats the flag's value.
func (r *retention) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(*r)) {
		kept := (*r)[name]
		text := name + "="
		if kept.Age > 0 {
			text += kept.Age.String()
		}
		if kept.Bytes > 0 {
			text += "/" + resource.NewQuantity(kept.Bytes, resource.BinarySI).String()
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ",")
}

// Type is the value's name in the help.
func (r *retention) Type() string { return "NAME=AGE/SIZE,..." }

func parseRetention(how string) (r bus.Retention, err error) {
	age, size, sized := strings.Cut(how, "/")
	if age == "" && !sized {
		return r, fmt.Errorf("neither an age nor a size is given: write AGE/SIZE, such as 72h/2Gi, 72h or /2Gi")
	}
	if age != "" {
		if r.Age, err = time.ParseDuration(age); err != nil {
			return r, fmt.Errorf("%q is no age: write it as 72h or 90m", age)
		}
		if err := oldEnough(r.Age); err != nil {
			return r, err
		}
	}
	if !sized {
		return r, nil
	}
	q, err := resource.ParseQuantity(size)
	if err != nil {
		return r, fmt.Errorf("%q is no size: write it as 2Gi or 500Mi", size)
	}
	r.Bytes = q.Value()
	return r, largeEnough(r.Bytes)
}

func oldEnough(age time.Duration) error {
	if age < leastAge {
		return fmt.Errorf("%v is less than %v, which is what the services need to find each other's work after they were away", age, leastAge)
	}
	return nil
}

// largeEnough accepts 0, which is no limit.
func largeEnough(bytes int64) error {
	if bytes != 0 && bytes < leastBytes {
		return fmt.Errorf("%d bytes are less than %s, which a few of the largest objects take up", bytes, resource.NewQuantity(leastBytes, resource.BinarySI))
	}
	return nil
}

// kept is an error if a name is neither a kind nor a controller. It accepts every kind with a
// group, because only the API server knows those; core kinds and controllers are known here.
func kept(name string) error {
	switch {
	case strings.Contains(name, "."):
		return nil
	case strings.Contains(name, "-"):
		for _, p := range controllers.Profiles() {
			if p.Name == name {
				return nil
			}
		}
		return fmt.Errorf("%q is no controller that Millrace has", name)
	case slices.Contains(coreResources(), name):
		return nil
	default:
		return fmt.Errorf("%q is neither a kind nor a controller: write pods, deployments.apps (with the group) or replicaset-controller", name)
	}
}

// coreResources are the kinds without a group.
func coreResources() (names []string) {
	core := schema.GroupVersion{Version: "v1"}
	for kind := range kinds.Scheme().KnownTypes(core) {
		plural, _ := meta.UnsafeGuessKindToResource(core.WithKind(kind))
		names = append(names, plural.Resource)
	}
	return names
}

// CheckRetention refuses limits below the minimum, before anything is started.
func (o *Options) CheckRetention() error {
	if err := oldEnough(o.maxAge); err != nil {
		return fmt.Errorf("read --stream-max-age: %w", err)
	}
	if err := largeEnough(o.maxBytes); err != nil {
		return fmt.Errorf("read --stream-max-bytes: %w", err)
	}
	return nil
}
