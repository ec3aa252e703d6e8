package quota_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/pkg/events/stream/quota"
)

// A reader counts from its order on.
func ExampleReaders_Admit() {
	ctx := context.Background()
	readers := quota.NewReaders(func(context.Context, string, string) ([]string, error) { return nil, nil })
	made, err := readers.Admit(ctx, quota.Key{User: "watcher", Stream: "EV_pods"})
	if err != nil {
		panic(err)
	}
	made("watcher-1")
	fmt.Println(readers.Of("watcher"))
	// Output:
	// 1
}
