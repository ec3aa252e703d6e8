package apiservertest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/millrace/millrace/pkg/events/apiservertest"
)

// A test stores what its program finds, says what goes wrong, and looks at what the program asked for.
func Example() {
	var t *testing.T // of the test
	s := apiservertest.New(t, apiservertest.Offline)
	s.Put("/api/v1/nodes/n1", "", map[string]any{})
	s.Break(func(r apiservertest.Request) (f apiservertest.Fault) {
		if r.Method == http.MethodDelete {
			f.Code = http.StatusTooManyRequests
		}
		return f
	})
	client := s.Client()
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		r, err := http.NewRequest(method, s.URL+"/api/v1/nodes/n1", nil)
		if err != nil {
			panic(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			panic(err)
		}
		answer.Body.Close()
		fmt.Println(method, answer.StatusCode)
	}
	fmt.Println(len(s.Requests()), s.Paths())
	// Output:
	// GET 200
	// DELETE 429
	// 2 [/api/v1/nodes/n1]
}
