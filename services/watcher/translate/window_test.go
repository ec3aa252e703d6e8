package translate_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/watcher/translate"
)

func TestAWindowBeginsWithWhatIsThere(t *testing.T) {
	var w translate.Window
	for i, op := range []events.Op{events.Gone, events.Mark, events.Gap, events.Is, events.Gone, events.Is} {
		w.Fold(op, uint64(i)+1, now)
	}
	if w.Since() != 4 {
		t.Errorf("it begins with %d", w.Since())
	}
	var damaged translate.Window
	damaged.Fold("", 7, now)
	if damaged.Since() != 7 {
		t.Errorf("with a message that cannot be read, it begins with %d", damaged.Since())
	}
}

// TestAFewEndsAreNoCrowd: they are read in no time.
func TestAFewEndsAreNoCrowd(t *testing.T) {
	var w translate.Window
	w.Fold(events.Is, 1, now)
	for i := range uint64(5000) {
		w.Fold(events.Gone, i+2, now)
	}
	if w.Crowded(1, now) {
		t.Error("it is crowded by 5000 ends")
	}
	if w.Fold(events.Gone, 5002, now); !w.Crowded(1, now) {
		t.Error("it is not crowded by one more")
	}
	if w.Begin(3); w.Crowded(1, now) { // the first of them is before that
		t.Error("an end counts that is before its beginning")
	}
	if w.Fold(events.Gone, 5003, now); !w.Crowded(1, now) {
		t.Error("the end with which it begins does not count")
	}
}

// TestAWindowIsCrowdedByEnds: by those in it, which have not expired, and only if
// there are more than objects.
func TestAWindowIsCrowdedByEnds(t *testing.T) {
	const ends = 7000
	crowd := func() *translate.Window {
		w := new(translate.Window)
		w.Fold(events.Is, 1, now)
		for i := range ends {
			w.Fold(events.Gone, uint64(i)+2, now.Add(time.Duration(i)))
		}
		return w
	}
	moved := crowd()
	moved.Begin(ends/2 + 2)
	for name, c := range map[string]struct {
		w       *translate.Window
		objects uint64
		expired time.Time
		want    bool
	}{
		"few objects":               {crowd(), 1, now, true},
		"one object less than ends": {crowd(), ends - 1, now, true},
		"as many objects":           {crowd(), ends, now, false},
		"most have expired":         {crowd(), 1, now.Add(ends / 2), false},
		"it begins behind many":     {moved, 1, now, false},
		"it holds nothing at all":   {new(translate.Window), 0, now, false},
	} {
		if got := c.w.Crowded(c.objects, c.expired); got != c.want {
			t.Errorf("%s: crowded is %t", name, got)
		}
	}
	if moved.Since() != ends/2+2 {
		t.Errorf("it begins with %d", moved.Since())
	}
}

// What ended before anything was there is before the window, and does not crowd it.
func TestEndsBeforeAWindowAreNoCrowd(t *testing.T) {
	var w translate.Window
	w.Fold(events.Gone, 1, now)
	w.Fold(events.Is, 2, now)
	for i := range uint64(5000) {
		w.Fold(events.Gone, i+3, now)
	}
	if w.Crowded(1, now) {
		t.Error("an end counts that was there before anything else")
	}
}
