package events_test

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A delta travels as a message with checksums. Its reader verifies and decodes it.
func ExampleDecodeDelta() {
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "web-1"}
	sent := events.Seal(events.EncodeDelta(events.Delta{
		Kind: ref.Kind, Ref: ref, Op: events.Is, UID: "7d1", ResourceVersion: "41", At: time.Unix(0, 0),
		ContentType: "application/json", Body: []byte(`{"metadata":{"name":"web-1"}}`),
	}))
	if err := events.Verify(sent); err != nil {
		fmt.Println(err)
	}
	d, err := events.DecodeDelta(ref, sent)
	fmt.Println(d.Ref, d.Op, d.ResourceVersion, err)

	sent.Data[2] = 'M'
	fmt.Println(events.Verify(sent) != nil)
	// Output:
	// pods:default/web-1 is 41 <nil>
	// true
}

// Back-off doubles from the first wait to the longest.
func ExampleBackoff() {
	for _, failures := range []int{1, 2, 3, 30} {
		fmt.Println(events.Backoff(failures, 5*time.Millisecond, 1000*time.Second))
	}
	// Output:
	// 5ms
	// 10ms
	// 20ms
	// 16m40s
}
