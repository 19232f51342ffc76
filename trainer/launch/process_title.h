#pragma once

#include <string>

namespace telegrad {

// What ps shows: "telegrad-train: worker 1". Call InitProcessTitle first thing
// in main: it moves argv and the environment to make room.
void InitProcessTitle(int argc, char** argv);
void SetProcessTitle(const std::string& title);

}  // namespace telegrad
