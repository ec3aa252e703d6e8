package notary_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/notary"
)

// A tree grows by the hashes of messages. The same messages have the same root, and others have not.
func ExampleTree() {
	root := func(bodies ...string) string {
		tree, err := notary.Continue(0, nil)
		if err != nil {
			fmt.Println(err)
		}
		for i, body := range bodies {
			if err := tree.Add(notary.Leaf(events.Message{Subject: "ev.pods.default.web", Sequence: uint64(i + 1), Data: []byte(body)})); err != nil {
				fmt.Println(err)
			}
		}
		hash, err := tree.Root()
		if err != nil {
			fmt.Println(err)
		}
		return hash.String()
	}
	fmt.Println(root("a", "b") == root("a", "b"), root("a", "b") == root("a", "c"))
	// Output: true false
}
