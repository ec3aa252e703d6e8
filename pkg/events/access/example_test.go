package access_test

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/pkg/events/access"
)

// New makes the accounts of NATS: each user may publish what its service publishes, such as turns.
func ExampleNew() {
	file := access.New([]string{"replicaset-controller"}).String()
	fmt.Println(strings.Contains(file, "turn.>"))
	// Output: true
}
