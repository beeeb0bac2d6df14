package webhooks

import _ "github.com/resourcestack/autohealer/controllers/a"

type answer struct{ told bool }

func tellWorld(a answer) bool {
	room := a.told
	return room
}

const refusal = "it is told anew"
