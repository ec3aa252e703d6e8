package watcher

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Two clients that want an object to be different write it back and forth for ever, each of them
// for good reasons: an autoscaler and a pipeline that both set replicas, say. Neither can see the
// fight. A watcher can, since it sees every change: the specification returns to what it was
// before, again and again, and each time another manager writes it.

const (
	// fightReturns is how many such returns within fightWindow make a fight. The watcher reports
	// the fight again after as many more.
	fightReturns = 10
	fightWindow  = 10 * time.Minute
	// maxContested bounds the remembered objects whose specification was changed.
	maxContested = 1 << 10
	// namedFields bounds the fields that a report of a fight names.
	namedFields = 3
)

// fights finds the fights among the changes of a kind. It ignores objects that have no
// specification with a generation, such as ConfigMaps.
type fights struct {
	specs generations[types.UID, specHistory]
}

// specHistory is what the watcher knows about an object whose specification was changed.
type specHistory struct {
	generation  int64
	now, before [sha256.Size]byte // hashes of the specification and of the one before it
	text        []byte            // the specification, once it has returned to an earlier one
	returns     int               // how often in a row it returned to the one before
	since       time.Time
	managers    map[string]bool
}

// fight is a fight that was found.
type fight struct {
	managers, fields []string
	times            int
	since            time.Time
}

// observe takes in a change, and reports whether it completes a fight. It calls spec only for changes of
// the specification, which are few.
func (f *fights) observe(d events.Delta, spec func() []byte) (found fight, ok bool) {
	c, known := f.specs.get(d.UID)
	if d.Generation <= 1 || known && c.generation == d.Generation {
		return fight{}, false // the specification has not changed
	}
	f.specs.limit = maxContested
	text := spec()
	if text == nil {
		return fight{}, false
	}
	sum := sha256.Sum256(text)
	c.generation = d.Generation
	switch {
	case !known:
		c.now = sum
	case sum == c.now: // another reason for a new generation, such as a deletion
	default:
		found, ok = c.changed(d, sum, text)
	}
	f.specs.put(d.UID, c)
	return found, ok
}

// changed takes in a changed specification.
func (c *specHistory) changed(d events.Delta, sum [sha256.Size]byte, text []byte) (found fight, ok bool) {
	returned := sum == c.before
	if !returned || d.At.Sub(c.since) > fightWindow {
		c.returns, c.since, c.managers, c.text = 0, d.At, map[string]bool{}, nil
	}
	c.now, c.before = sum, c.now
	if d.Proven {
		c.managers[d.By.Name] = true
	}
	if !returned {
		return fight{}, false
	}
	last := c.text
	c.text = text
	if c.returns++; c.returns < fightReturns || len(c.managers) < 2 {
		return fight{}, false
	}
	found = fight{managers: slices.Sorted(maps.Keys(c.managers)), fields: changedFields(last, text), times: c.returns, since: c.since}
	c.returns, c.since = 0, d.At
	return found, true
}

// changedFields returns fields in which two specifications differ, at most namedFields of them.
func changedFields(a, b []byte) (fields []string) {
	var was, is any
	if json.Unmarshal(a, &was) != nil || json.Unmarshal(b, &is) != nil {
		return nil
	}
	var walk func(at string, a, b any)
	walk = func(at string, a, b any) {
		x, object := a.(map[string]any)
		y, too := b.(map[string]any)
		if !object || !too {
			if !reflect.DeepEqual(a, b) && len(fields) < namedFields {
				fields = append(fields, at)
			}
			return
		}
		all := maps.Clone(x)
		maps.Copy(all, y)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			walk(at+"."+name, x[name], y[name])
		}
	}
	walk(".spec", was, is)
	return fields
}

// specOf returns an object's specification as JSON; nil where it has none.
func specOf(obj runtime.Object) []byte {
	var spec any
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		spec = custom.Object["spec"]
	} else if v := reflect.Indirect(reflect.ValueOf(obj)); v.Kind() == reflect.Struct {
		if field := v.FieldByName("Spec"); field.IsValid() {
			spec = field.Interface()
		}
	}
	text, err := json.Marshal(spec)
	if err != nil || spec == nil {
		return nil
	}
	return text
}

// decodeRecorded decodes the object of a delta as the record has it; nil when it cannot be read.
func (k *kindWatch) decodeRecorded(d events.Delta) runtime.Object {
	kind := k.kind
	kind.Form = d.Form
	m, err := kinds.Decode(kind, d.ContentType, d.Body)
	if err != nil {
		return nil
	}
	obj, _ := m.(runtime.Object)
	return obj
}

// logFight logs a fight that a change completes. It logs no values, which may be secret.
func (k *kindWatch) logFight(ctx context.Context, d events.Delta, obj runtime.Object) {
	if d.Op != events.Is || d.Sync {
		return
	}
	spec := func() []byte {
		if _, raw := obj.(*kinds.Raw); raw {
			obj = k.decodeRecorded(d)
		}
		return specOf(obj)
	}
	if f, found := k.fights.observe(d, spec); found {
		k.metrics.fights.WithLabelValues(string(k.kind.Name)).Inc()
		klog.FromContext(ctx).Info("Managers write an object back and forth: let only one of them set these fields",
			"object", d.Ref.String(), "managers", f.managers, "fields", f.fields, "times", fmt.Sprintf("%d since %s", f.times, f.since.UTC().Format(time.RFC3339)))
	}
}
