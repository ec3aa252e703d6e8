package redact_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
)

// A rule hides values before an object is recorded.
func ExampleParse() {
	rule, err := redact.Parse("configmaps:.data")
	if err != nil {
		fmt.Println(err)
	}
	object := &corev1.ConfigMap{Data: map[string]string{"password": "secret"}}
	hidden := redact.Rules{rule}.Hide(kinds.ConfigMaps.Name, object)
	fmt.Println(hidden, object.Data["password"] == "secret")
	// Output: true false
}
