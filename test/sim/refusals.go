package sim

// Refusals is what users do with large Deployments, while the API server refuses pods beyond a
// number that changes.
var Refusals = []Operation{refuseSome, refuseSome, growSome, growSome, imageSome, scaleSome, deletePod}

// growSome scales a Deployment up by so many that one turn creates several batches.
func growSome(w *World) {
	if ref, there := w.some(); there {
		w.Scale(ref.Name, int32(6+w.roll(8)))
	}
}

// refuseSome has the API server refuse pods beyond a number.
func refuseSome(w *World) { quota(w.roll(12)).Do(w) }

// Admit has the API server refuse nothing any more.
func Admit(w *World) { quota(-1).Do(w) }
