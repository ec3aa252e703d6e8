package deployment // want: has no package comment

import (
	"fmt"
	"math/rand/v2" // want: names and ids derive from inputs
	"os"           // want: pure code touches no file
	clock "time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2" // want: the reason of a decision is its log line

	_ "github.com/millrace/millrace/services/reconcilers/controllers/replicaset" // want: never imports another controller
	_ "github.com/prometheus/client_golang/prometheus"                           // want: a controller knows the vocabulary
)

// Name is documented.
const Name = "deployment"

const Alias = "deploy" // beside it is enough

type View struct { // want: exported View has no comment
	A int
}

func decide(out chan<- int) clock.Time { // want: has a channel
	go fmt.Println(rand.Int(), os.Args) // want: starts a goroutine & uses fmt.Println
	klog.Info("deciding")
	select { // want: selects
	case out <- 1: // want: sends on a channel
	default:
	}
	println("decided")                            // want: prints
	_ = metav1.Now()                              // want: uses metav1.Now
	if clock.Since(clock.Time{}) > clock.Second { // want: uses clock.Since
		return clock.Now() // want: uses clock.Now
	}
	return later(nil)
}

func later(in <-chan clock.Time) clock.Time { // want: has a channel
	return <-in // want: receives from a channel
}
