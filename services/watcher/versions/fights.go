package versions

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
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

// Fights finds the fights among the changes of a kind. It ignores objects that have no
// specification with a generation, such as ConfigMaps.
type Fights struct {
	specs Recent[types.UID, specHistory]
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

// Fight is a fight that was found.
type Fight struct {
	// Managers are the field managers that write the object, sorted.
	Managers []string
	// Fields are some of the fields that they write.
	Fields []string
	// Times is how often in a row the specification returned, since Since.
	Times int
	Since time.Time
}

// Observe takes in a change, and reports whether it completes a fight. It calls spec only for changes of
// the specification, which are few.
func (f *Fights) Observe(d events.Delta, spec func() []byte) (found Fight, ok bool) {
	c, known := f.specs.Get(d.UID)
	if d.Generation <= 1 || known && c.generation == d.Generation {
		return Fight{}, false // the specification has not changed
	}
	f.specs.Limit = maxContested
	text := spec()
	if text == nil {
		return Fight{}, false
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
	f.specs.Put(d.UID, c)
	return found, ok
}

// changed takes in a changed specification.
func (c *specHistory) changed(d events.Delta, sum [sha256.Size]byte, text []byte) (found Fight, ok bool) {
	returned := sum == c.before
	if !returned || d.At.Sub(c.since) > fightWindow {
		c.returns, c.since, c.managers, c.text = 0, d.At, map[string]bool{}, nil
	}
	c.now, c.before = sum, c.now
	if d.Proven {
		c.managers[d.By.Name] = true
	}
	if !returned {
		return Fight{}, false
	}
	last := c.text
	c.text = text
	if c.returns++; c.returns < fightReturns || len(c.managers) < 2 {
		return Fight{}, false
	}
	found = Fight{Managers: slices.Sorted(maps.Keys(c.managers)), Fields: changedFields(last, text), Times: c.returns, Since: c.since}
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

// SpecOf returns an object's specification as JSON; nil where it has none.
func SpecOf(obj runtime.Object) []byte {
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
